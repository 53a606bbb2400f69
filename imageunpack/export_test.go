package imageunpack

// Inspect is inspect, for tests that need no containerd.
var Inspect = inspect

// Settled is settled.
var Settled = settled
