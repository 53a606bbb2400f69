package agent

import "context"

// Options describe the agent of one VM.
type Options struct {
	// Socket is the unix socket that QEMU connects to the guest's port.
	Socket string
	// Terminals are the VM's consoles for commands, which only the Agent may use.
	Terminals []Terminal
	// Large bounds how many large answers of all agents are in memory at once.
	Large Large
	// Namespace is the VM's, which takes Large's turns.
	Namespace string
	// Cards, if not nil, returns the VM's network cards by their MAC addresses. What the guest reports of those is kept,
	// however many interfaces the guest has made itself.
	Cards func() map[string]string
	// Changed, if not nil, is called whenever the result of [Facts.State] may have
	// changed. It must not block for long.
	Changed func()
}

// Large gives turns to namespaces; package turns' Turns does.
type Large interface {
	Take(ctx context.Context, namespace string, waiting func()) (end func(), err error)
}

// Agent is the agent of one VM: its parts, which share a connection.
type Agent struct {
	Port     *Port
	Commands *Commands
	Queries  *Queries
	Actions  *Actions
	Facts    *Facts
}

// New returns the agent of a VM.
func New(o Options) *Agent { return join(newLink(o), o) }

func newLink(o Options) *link {
	return &link{socket: o.Socket, patience: patience{syncTime, silence, outputSilence, largeGrace}, large: o.Large, namespace: o.Namespace, turn: make(chan struct{}, 1)}
}

// join makes the parts that use a link.
func join(l *link, o Options) *Agent {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Cards == nil {
		o.Cards = func() map[string]string { return nil }
	}
	port := &Port{absent: l.cut, changed: o.Changed, now: reading{presence: Unknown}}
	l.port = port
	terminals := make(chan Terminal, len(o.Terminals))
	for _, t := range o.Terminals {
		terminals <- t
	}
	queries := &Queries{agent: l, cards: o.Cards}
	facts := &Facts{port: port, agent: queries, changed: o.Changed, hasten: make(chan struct{}, 1)}
	return &Agent{
		Port: port, Queries: queries, Facts: facts,
		Commands: &Commands{agent: l, terminals: terminals},
		Actions:  &Actions{agent: l, facts: facts},
	}
}
