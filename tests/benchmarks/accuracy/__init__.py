"""How good the trained models are: recipes side by side, on real images, over several seeds."""
