// Package server serves the PVCs of a VirtualMachineExport, or the disks of a backup of a running VM,
// over HTTPS, in the export's pod. It owns the paths and the formats, the check of the token, and the
// bounds on clients.
//
// It leaves the pod, its certificate, its token and the links to package export. It knows no API
// server: all that it serves is mounted in its pod.
//
// # Rules
//
//   - What a PVC holds is hostile: a guest wrote it. Files are opened below the PVC's folder
//     alone, and only regular files and folders are.
//   - Each request has the token, but those of the kubelet's probe.
//   - The disks of a backup come from the VM's node, by a socket in the pod, and for each request by a
//     connection. The node ends the connections before the backup ends.
//   - A transfer that fails ends its connection, so that no client takes a part for the whole.
package server
