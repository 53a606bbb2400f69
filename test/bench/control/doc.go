// Package control measures the controller, in two replicas as it is deployed, against a real API server:
// without nodes its memory with nothing to do and with many VMs whose pods are not scheduled, how long
// a pod takes, and how many requests; with a real scheduler and nodes that KWOK plays, how all of that
// grows with the number of VMs that run, and what a leader's end costs.
//
// It owns what is measured, and how. Package apiserver runs the API server, package daemon the processes.
package control
