"""Virtual-clock simulation. Importing the package stays free of NumPy, because the fake provider uses its kernel."""
