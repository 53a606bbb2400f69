package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Bounds of what is kept of a guest's interfaces.
const (
	maxInterfaces = 32
	maxAddresses  = 32
)

// State asks the agent for each part of its state. It continues if the agent refuses
// one, and returns the errors of all.
func (q *Queries) State(ctx context.Context) (State, error) {
	var s State
	var errs []error
	for _, ask := range []func(context.Context, *State) error{
		q.askFrozen, q.askVersion, q.askHostname, q.askOS, q.askInterfaces, q.askFilesystems,
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

// askFrozen ignores a refusal: not all guests can freeze their file systems.
func (q *Queries) askFrozen(ctx context.Context, s *State) (err error) {
	s.Frozen, err = frozen(ctx, q.agent)
	if _, refused := errors.AsType[*refusal](err); refused {
		return nil
	}
	return err
}

// basic returns the commands that guests should allow, as KubeVirt expects of them.
func basic() []string {
	return []string{
		"guest-ping", "guest-get-time", "guest-info", "guest-shutdown", "guest-network-get-interfaces", "guest-get-fsinfo",
		"guest-get-host-name", "guest-get-users", "guest-get-timezone", "guest-get-osinfo",
	}
}

func (q *Queries) askVersion(ctx context.Context, s *State) error {
	i, err := q.info(ctx)
	if err != nil {
		return err
	}
	s.Version = clean(i.Version)
	if allowed := i.commands(); len(allowed) > 0 {
		s.Refused = slices.DeleteFunc(basic(), func(name string) bool { return allowed[name] })
	}
	return nil
}

func (q *Queries) askHostname(ctx context.Context, s *State) error {
	var answer struct {
		Name string `json:"host-name"`
	}
	err := q.agent.call(ctx, "guest-get-host-name", nil, smallAnswer, &answer)
	s.Hostname = clean(answer.Name)
	return err
}

func (q *Queries) askOS(ctx context.Context, s *State) error {
	var answer struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Pretty  string `json:"pretty-name"`
		Version string `json:"version-id"`
		Kernel  string `json:"kernel-release"`
		Machine string `json:"machine"`
	}
	if err := q.agent.call(ctx, "guest-get-osinfo", nil, smallAnswer, &answer); err != nil {
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

// askFilesystems ignores a refusal: not all agents know them.
func (q *Queries) askFilesystems(ctx context.Context, s *State) (err error) {
	s.Filesystems, err = q.Filesystems(ctx)
	if _, refused := errors.AsType[*refusal](err); refused {
		return nil
	}
	return err
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

func (q *Queries) askInterfaces(ctx context.Context, s *State) error {
	var found []foundInterface
	if err := q.agent.call(ctx, "guest-network-get-interfaces", nil, smallAnswer, &found); err != nil {
		return err
	}
	s.Interfaces = interfaces(found, q.cards())
	return nil
}

// interfaces returns the well-formed interfaces that a guest reported, except its loopback. Those with the MAC addresses
// of the VM's cards come first: a guest with many containers may name the card that came last after all of theirs.
func interfaces(found []foundInterface, cards map[string]string) []Interface {
	var all []Interface
	rank := func(f foundInterface) int {
		if mac, err := net.ParseMAC(f.MAC); err == nil {
			if _, is := cards[mac.String()]; is {
				return 0
			}
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b foundInterface) int { return rank(a) - rank(b) })
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
