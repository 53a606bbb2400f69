package order

// Link is the machine control that sets the links of a running VM's network cards. Its argument is the JSON
// of [Links], and it answers with what the cards have then. It may be repeated.
const Link = "link-state"

// Links are the states of the links of a VM's network cards.
type Links struct {
	// Down are the names of the cards without a link. All others have one.
	Down []string `json:"down"`
}
