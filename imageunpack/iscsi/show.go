package iscsi

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// target is a target in tgtd's list.
type target struct {
	id       int32
	name     string
	path     string // of the disk; empty without one
	readOnly bool
	accounts []string
	allowed  []string // access rules
	nexuses  []nexus
}

// nexus is a connection of an initiator.
type nexus struct {
	session    uint64
	connection uint32
	initiator  string
	address    string
}

// serves reports whether t is complete. Its access rule is added last.
func (t target) serves(w Target) bool {
	return t.id != 0 && t.path == w.Path && t.readOnly == w.ReadOnly &&
		len(t.accounts) == 1 && t.accounts[0] == w.User &&
		len(t.allowed) == 1 && (t.allowed[0] == w.Initiator || isAddress(t.allowed[0]))
}

// isAddress reports whether an access rule has an address, as those of [Daemon.Hold], or a name.
func isAddress(rule string) bool {
	_, err := netip.ParseAddr(rule)
	return err == nil
}

// parseTargets parses tgtd's list, which is meant for people: it recognises sections by their titles and
// lines by their beginnings.
func parseTargets(text string) []target {
	var (
		all     []target
		section string
		disk    bool
		session uint64
		peer    string
	)
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if id, ok := strings.CutPrefix(key, "Target "); ok && !strings.HasPrefix(line, " ") {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil {
				continue
			}
			all = append(all, target{id: int32(n), name: value})
			section, disk = "", false
			continue
		}
		if len(all) == 0 {
			continue
		}
		t := &all[len(all)-1]
		if title := strings.TrimSuffix(key, ":"); strings.HasSuffix(title, " information") {
			section = title
			continue
		}
		switch section {
		case "LUN information":
			switch key {
			case "LUN":
				disk = value == strconv.Itoa(LUN)
			case "Backing store path":
				if disk {
					t.path = value
				}
			case "Readonly":
				if disk {
					t.readOnly = value == "Yes"
				}
			}
		case "I_T nexus information":
			switch key {
			case "I_T nexus":
				session, _ = strconv.ParseUint(value, 10, 64)
			case "Initiator":
				peer, _, _ = strings.Cut(value, " ")
			case "Connection":
				c, _ := strconv.ParseUint(value, 10, 32)
				t.nexuses = append(t.nexuses, nexus{session: session, connection: uint32(c), initiator: peer})
			case "IP Address":
				if n := len(t.nexuses); n > 0 {
					t.nexuses[n-1].address = value
				}
			}
		case "Account information":
			if key != "" {
				t.accounts = append(t.accounts, key)
			}
		case "ACL information":
			if key != "" {
				t.allowed = append(t.allowed, key)
			}
		}
	}
	return all
}

// parsePortals parses lines such as "Portal: 127.0.0.1:3260,1".
func parsePortals(text string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if portal, ok := strings.CutPrefix(strings.TrimSpace(line), "Portal: "); ok {
			address, _, _ := strings.Cut(portal, ",")
			all = append(all, address)
		}
	}
	return all
}

func (t target) String() string { return fmt.Sprintf("%d (%s)", t.id, t.name) }
