package node

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func (n *Node) links(context.Context) ([]string, error) {
	return within(fmt.Sprintf("/proc/%d/ns/net", n.PID()), linkNames)
}

func (n *Node) namespaces(context.Context) ([]string, error) { return list(n.o.run("netns")) }

// podNetworks are what is in the namespaces of pods, with their names before it.
func (n *Node) podNetworks(ctx context.Context) ([]string, error) {
	names, err := list(n.o.run("netns"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		items, err := n.podNetwork(ctx, name)
		// A namespace that comes has its name a moment before one can enter it.
		for end := time.Now().Add(comingTime); err != nil && exists(n.o.run("netns", name)) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
			items, err = n.podNetwork(ctx, name)
		}
		if err != nil && exists(n.o.run("netns", name)) {
			return nil, err
		}
		if err != nil {
			continue // it went while we looked
		}
		for _, item := range items {
			all = append(all, name+" "+item)
		}
	}
	return all, nil
}

// comingTime bounds the wait for a namespace that is being made.
const comingTime = 10 * time.Second

func (n *Node) podNetwork(ctx context.Context, name string) ([]string, error) {
	items, err := within(n.root("/run/netns/"+name), linksWithAddresses)
	if err != nil {
		return nil, err
	}
	tables, err := n.Output(ctx, "nsenter", "--net=/run/netns/"+name, "nft", "list", "tables")
	if err != nil {
		return nil, err
	}
	for item := range strings.Lines(tables) {
		items = append(items, strings.TrimSpace(item))
	}
	return items, nil
}

// within calls do on the network namespace at path.
func within(path string, do func(*netlink.Handle) ([]string, error)) (all []string, err error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("find network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	defer h.Close()
	return do(h)
}

func linkNames(h *netlink.Handle) (all []string, err error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		all = append(all, l.Type()+" "+l.Attrs().Name)
	}
	return all, nil
}

// linksWithAddresses are as CNI made them, or as a guest's network changed them. IPv6 addresses
// that the kernel makes by itself take their time to come, and are left out.
func linksWithAddresses(h *netlink.Handle) (all []string, err error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		all = append(all, fmt.Sprintf("%s %s %s", l.Type(), a.Name, a.HardwareAddr))
		addresses, err := h.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		for _, address := range addresses {
			all = append(all, a.Name+" "+address.IPNet.String())
		}
	}
	return all, nil
}

// rules are the node's tables, chains, sets and rules of nftables, and of iptables on top of them, each with what it is
// in before it, and without counters.
func (n *Node) rules(ctx context.Context) ([]string, error) {
	out, err := n.Output(ctx, "nft", "--stateless", "list", "ruleset")
	return slices.DeleteFunc(nested(out), proxys.MatchString), err
}

// proxys matches the tables of a cluster's kube-proxy. It empties the chains of a Service that is gone, but removes them only
// with its next change, which may be an hour away.
var proxys = regexp.MustCompile(`^table ip6? kube-proxy(:|$)`)

// nested returns the lines of a text of nested blocks, each with the heads of the blocks that it is in.
func nested(text string) (all []string) {
	var in []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		head, opens := strings.CutSuffix(line, " {")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case line == "}":
			in = in[:max(0, len(in)-1)]
			continue
		}
		all = append(all, strings.Join(append(slices.Clone(in), head), ": "))
		if opens {
			in = append(in, head)
		}
	}
	return all
}
