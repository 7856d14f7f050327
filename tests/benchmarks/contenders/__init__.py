"""Programs that train a network on a folder of images, each in its own process."""
