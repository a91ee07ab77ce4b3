"""How a program is called: nested arguments and results, checks of arguments, state, sessions."""
