// Package bench measures what the shim costs on a development node of real parts: starts of VMs
// and pods, calls that are passed on, memory and idle time beside QEMU.
//
// It owns what is measured, and how: both sides of each comparison take turns within one run, so
// that what else the machine does meets both. Figures of different runs don't compare. The node is
// package node's; statistics, table and JSON are package report's.
package bench
