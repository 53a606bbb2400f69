package record

// VSOCKCID returns the address of the VM's socket device; 0 for a VM without one. It is the VM's user ID,
// which no other VM of the node has, and which a later VM gets only after the end of this one. CIDs
// below 3 are the kernel's, as are the user IDs.
func (r Container) VSOCKCID() uint32 {
	if !r.Spec.VSOCK {
		return 0
	}
	return r.Domain.UID
}
