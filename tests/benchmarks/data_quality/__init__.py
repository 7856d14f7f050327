"""What a run says about its data and its predictions: how right it is, if faults are planted in
images.
"""
