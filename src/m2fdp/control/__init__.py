"""What training costs: energy and delay of computing and communicating."""
