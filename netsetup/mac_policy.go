package netsetup

import "fmt"

// MACError reports that a bridged guest is to have a MAC address on the pod network
// that CNI did not give to the pod. With the address of another pod, the guest would
// get that pod's traffic: a bridge sends frames to the port where it last saw their
// address. Secondary networks have no such rule: who defines them decides.
type MACError struct {
	// Card is the card's index in Pod.Interfaces.
	Card int
	// Interface is the pod's. Own is its address, Wanted the guest's.
	Interface   string
	Own, Wanted MAC
}

func (e *MACError) Error() string {
	return fmt.Sprintf("a bridged guest on the pod network has the MAC address of %s, %s, and not %s", e.Interface, e.Own, e.Wanted)
}

// Unwrap returns the error's kind.
func (e *MACError) Unwrap() error { return ErrUnsuited }

func (n NIC) checkMAC(card int) error {
	if !n.bridged() || n.Interface != podInterface || n.GuestMAC.equal([]byte(n.OriginalMAC)) {
		return nil
	}
	return &MACError{Card: card, Interface: n.Interface, Own: n.OriginalMAC, Wanted: n.GuestMAC}
}
