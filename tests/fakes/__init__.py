"""Stand-ins for the ports: a store with two layers, a clock moved by hand, a Gym with a real protocol behind a transport."""
