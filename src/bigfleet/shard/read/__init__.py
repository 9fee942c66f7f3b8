"""Questions of people and programs: needs, machines, actions, explanations. It changes nothing."""
