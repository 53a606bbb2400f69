// Package control measures the controller, in two replicas as it is deployed, against a real API server
// without nodes: its memory with nothing to do and with many VMs whose pods are not scheduled, how long
// a pod takes, and how many requests.
//
// It owns what is measured, and how. Package apiserver runs the API server.
package control
