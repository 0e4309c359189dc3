"""Everything that compiles, runs and checks a convolution kernel."""
