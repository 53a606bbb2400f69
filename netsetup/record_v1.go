package netsetup

import "encoding/json"

// onlyNIC has the fields of the only card in a Plan of a version 1 record.
type onlyNIC struct {
	NIC
	Addressing
}

// UnmarshalJSON implements json.Unmarshaler. It also reads the Plans of version 1 records.
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
