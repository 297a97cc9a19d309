"""Do images show what their prompts say: both are embedded by one model, and each ranks the other among others."""
