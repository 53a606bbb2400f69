// Package export lets users download the disks of VMs, as VirtualMachineExports request it: it runs
// a pod per export that has the PVCs and serves them over HTTPS. The pod of a backup in mode Pull has
// no PVC: the VM's node serves it.
//
// It leaves the serving to package server, clients outside of the cluster to package proxy, snapshots to package snapshot, and the binding of PVCs
// to Kubernetes.
//
// # Rules
//
//   - Nothing is exported while a guest or another pod may write it: the export's pod goes then.
//   - The controller reads no Secret but the TLS Secret of the export proxy's Ingress, if that exists. It
//     writes the key of each pod's certificate once, into a Secret that the pod owns, and keeps none.
//   - The export owns all that is made for it. After its time it is deleted, and Kubernetes deletes
//     the rest.
package export
