package netsetup

import "encoding/json"

// onlyNIC is how records of version 1 hold a Plan: with the fields of its only card.
type onlyNIC struct {
	NIC
	Addressing
}

// UnmarshalJSON implements json.Unmarshaler. It reads the Plans of records of version 1 too.
func (p *Plan) UnmarshalJSON(text []byte) error {
	type plain Plan // without this method
	if err := json.Unmarshal(text, (*plain)(p)); err != nil || len(p.NICs) > 0 {
		return err
	}
	var only onlyNIC
	if err := json.Unmarshal(text, &only); err != nil || only.Tap == "" {
		return err
	}
	only.IPv4 = only.Addressing
	only.IPv4.Pod = linkAddress(only.Bridge)
	p.NICs = []NIC{only.NIC}
	return nil
}
