"""Everything that a trained directory needs to predict: architectures, decoding, framing, the
classifier.

`train` copies this folder into the trained model directory, where it works without the rest of the
package (it imports nothing from it), so a model predicts with the very code that validated it.
"""
