"""Programs that train one network on one folder of images, each in a process of its own."""
