// Package push pushes a disk of a VirtualMachineExport to a registry as a registry disk, in the init
// container of the export's pod. It owns the image, the connection to the registry, and what the
// container leaves as its termination message.
//
// It leaves the pod, and what the export's status says, to package export, and the opening of the
// disk to package server. It knows no API server.
//
// # Rules
//
//   - The disk is read three times, and held in no file and not in memory: for the clusters that have
//     data, for the digest, and for the registry. A registry that has the layer gets it no second
//     time.
//   - Credentials come from a mounted Secret, and reach only the registry that they are for.
package push
