// Package subresources serves subresources.kubevirt.io, the API of virtctl, behind the API server: what
// users do with a VM without changing its manifest. It accepts calls from the API server's front proxy
// alone, asks the API server whether the proxy's caller may make the call, and reaches the guest through
// the streams of the instance's pod, with the controller's account. It leaves starts and stops to the
// reconciler of VMs, and the VM's controls to the node's shim.
package subresources
