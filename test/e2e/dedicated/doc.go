// Package dedicated tests VMs with dedicatedCpuPlacement in a cluster whose kubelet really has the static CPU
// manager and a topology manager: `make test-cluster SLOW=1`. Package e2e tests the same threads without a
// kubelet, and with huge pages.
package dedicated
