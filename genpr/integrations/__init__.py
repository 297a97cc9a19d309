"""genpr inside the training frameworks people use; each module needs its framework, and `import genpr` none of them."""
