// Package e2e tests VM containers end to end, as a kubelet and a user of crictl
// meet them: a development node of real parts, real images and real guests.
//
// It owns what only shows when all parts stand together. What one part promises is tested beside
// that part; images and pods that must be refused are package badinput's. Tests share one node, and
// each makes its own pods; those that disturb others don't run in parallel. When all have run, the
// node must hold what it held before.
package e2e
