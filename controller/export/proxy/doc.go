// Package proxy forwards requests from outside of the cluster to the servers of VirtualMachineExports.
// It owns the paths, which are KubeVirt's, the choice of the server, and the bounds on clients.
//
// It leaves the check of the token to the export's server, its certificate's renewal to the controller,
// and the way from outside to an Ingress or a Service.
//
// # Rules
//
//   - A request reaches the Service of a ready export and nothing else: its path names the export, and
//     the certificate in the export's status proves the server.
//   - Clients are strangers until the export's server has seen their token, and a server can be a user's
//     own program. The proxy passes on the headers that both need, and bounds each of them.
//   - The token is passed on, and never logged.
package proxy
