"""The parameters, the recipe and the options of a model, as a user gives them."""
