// Package subresources serves subresources.kubevirt.io, the API of virtctl, behind the API server: what
// users do with a VM without changing its manifest. It accepts calls from the API server's front proxy
// alone, asks the API server whether the proxy's caller may make the call, and reaches the guest through
// the streams of the instance's pod, with the controller's account. It leaves starts and stops to the
// reconciler of VMs, and the VM's controls to the node's shim.
//
// To add a subresource:
//
//  1. Add a row to table in routes.go, and remove the name from unsupported.go.
//  2. Write its handler: lifecycle.go changes a VM, controls.go runs a control in the pod, stream.go opens a
//     stream. A new control of the VM itself is in shim/vm/guest/controls.go.
//  3. Add it to the roles that may use it, in deploy/kubernetes/users.yaml.
//  4. Add it to testdata/resources.txt, and a command to test/e2e/cluster/virtctl_test.go, which writes
//     docs/virtctl.md with -update.
package subresources
