// Package subresources serves subresources.kubevirt.io, which virtctl speaks, as an API behind the API
// server: what people do with a virtual machine beside changing its manifest. It believes nobody but
// the API server's front proxy, asks whether that proxy's caller may do it, and reaches the guest by
// the doors of the instance's own pod, with the controller's account. It leaves what a start or stop
// comes to to the controller, and a machine's buttons to the node's shim.
package subresources
