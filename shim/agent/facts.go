package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// State is what the agent has reported about its guest. All fields but Presence and
// Since are the guest's own text.
type State struct {
	Presence Presence `json:"state"`
	// Since is when the agent connected or disconnected, zero if not known.
	Since time.Time `json:"since,omitzero"`
	// Updated is when the agent reported the following fields, zero if it never did.
	Updated    time.Time   `json:"updated,omitzero"`
	Version    string      `json:"version,omitempty"`
	Hostname   string      `json:"hostname,omitempty"`
	OS         *OS         `json:"os,omitempty"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Problem is why the agent reported nothing.
	Problem string `json:"problem,omitempty"`
}

// OS is a guest's operating system, with values of os-release(5) and uname(2).
type OS struct {
	ID      string `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Machine string `json:"machine,omitempty"`
}

// Interface is a network interface of a guest.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// Bounds of what is kept.
const (
	maxInterfaces = 32
	maxAddresses  = 32
)

// aboutAge is the age after which State is refreshed.
const aboutAge = 10 * time.Second

// aboutTime bounds a refresh.
const aboutTime = 30 * time.Second

// about caches what an agent reported.
type about struct {
	state State
	asked time.Time // when the last refresh began
	busy  bool
	stale bool // the agent connected or disconnected since
}

// State returns the cached state, without a call to the agent.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.about.state
	s.Presence, s.Since = a.presence, a.since
	return s
}

// Due reports whether to call [Agent.Refresh]: an agent is connected, and the
// cached state is old and not being refreshed.
func (a *Agent) Due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence == Present && !a.about.busy && time.Since(a.about.asked) > aboutAge
}

// The pauses between two refreshes by Watch: the first, which is short since a
// booting guest's state changes soon, and the longest.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// Watch refreshes the state regularly until the presence changes, gone is closed or ctx ends.
func (a *Agent) Watch(ctx context.Context, gone <-chan struct{}) {
	told := a.timesTold()
	for pause := firstPause; ; pause = min(4*pause, lastPause) {
		a.Refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-time.After(pause):
		}
		if a.timesTold() != told {
			return
		}
	}
}

func (a *Agent) timesTold() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told
}

// Refresh asks the agent for the state that State returns from then on.
func (a *Agent) Refresh(ctx context.Context) {
	a.mu.Lock()
	if a.about.busy {
		a.mu.Unlock()
		return
	}
	a.about.busy, a.about.stale, a.about.asked = true, false, time.Now()
	a.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, aboutTime, ErrSilent)
	defer cancel()
	s, err := a.interview(ctx)
	if err != nil {
		s.Problem = clean(err.Error())
	}
	defer a.notify()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.about.busy = false
	if a.about.stale {
		a.about.asked = time.Time{} // the agent has changed or disconnected
		return
	}
	a.about.state = s
}

// Look asks the agent for its state and returns what it answers, without using the cache.
func (a *Agent) Look(ctx context.Context) State {
	s, _ := a.interview(ctx)
	return s
}

// interview asks the agent for each part of the state. It continues if the agent refuses one.
func (a *Agent) interview(ctx context.Context) (State, error) {
	var s State
	var errs []error
	for _, ask := range []func(context.Context, *State) error{
		a.askVersion, a.askHostname, a.askOS, a.askInterfaces,
	} {
		err := ask(ctx, &s)
		if _, refused := errors.AsType[*refusal](err); err != nil && !refused {
			return s, err
		}
		errs = append(errs, err)
	}
	s.Updated = time.Now()
	return s, errors.Join(errs...)
}

func (a *Agent) askVersion(ctx context.Context, s *State) error {
	var answer struct {
		Version string `json:"version"`
	}
	err := a.call(ctx, "guest-info", nil, smallAnswer, &answer)
	s.Version = clean(answer.Version)
	return err
}

func (a *Agent) askHostname(ctx context.Context, s *State) error {
	var answer struct {
		Name string `json:"host-name"`
	}
	err := a.call(ctx, "guest-get-host-name", nil, smallAnswer, &answer)
	s.Hostname = clean(answer.Name)
	return err
}

func (a *Agent) askOS(ctx context.Context, s *State) error {
	var answer struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Pretty  string `json:"pretty-name"`
		Version string `json:"version-id"`
		Kernel  string `json:"kernel-release"`
		Machine string `json:"machine"`
	}
	if err := a.call(ctx, "guest-get-osinfo", nil, smallAnswer, &answer); err != nil {
		return err
	}
	name := answer.Pretty
	if name == "" {
		name = answer.Name
	}
	s.OS = &OS{
		ID: clean(answer.ID), Name: clean(name), Version: clean(answer.Version),
		Kernel: clean(answer.Kernel), Machine: clean(answer.Machine),
	}
	return nil
}

// foundInterface is an element of the result of guest-network-get-interfaces.
type foundInterface struct {
	Name      string `json:"name"`
	MAC       string `json:"hardware-address"`
	Addresses []struct {
		Address string `json:"ip-address"`
		Prefix  int    `json:"prefix"`
	} `json:"ip-addresses"`
}

func (a *Agent) askInterfaces(ctx context.Context, s *State) error {
	var found []foundInterface
	if err := a.call(ctx, "guest-network-get-interfaces", nil, smallAnswer, &found); err != nil {
		return err
	}
	s.Interfaces = interfaces(found)
	return nil
}

// interfaces returns the well-formed interfaces that a guest reported, except its loopback.
func interfaces(found []foundInterface) []Interface {
	var all []Interface
	for _, f := range found {
		if len(all) == maxInterfaces {
			break
		}
		if f.Name == "lo" {
			continue
		}
		i := Interface{Name: clean(f.Name)}
		if mac, err := net.ParseMAC(f.MAC); err == nil {
			i.MAC = mac.String()
		}
		for _, address := range f.Addresses {
			ip, err := netip.ParseAddr(address.Address)
			p := netip.PrefixFrom(ip.WithZone(""), address.Prefix)
			if err == nil && p.IsValid() && len(i.Addresses) < maxAddresses {
				i.Addresses = append(i.Addresses, p)
			}
		}
		all = append(all, i)
	}
	return all
}
