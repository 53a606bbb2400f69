// Package traces tests the traces of a VM's start with the OpenTelemetry Collector, in a cluster of which all parts
// trace: `make test-cluster SLOW=1`.
package traces
