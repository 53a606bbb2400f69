package vms

import (
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/shim/agent"
)

// agentRows returns the rows of inspect's table about the guest agent, and what it
// reports about the guest.
func agentRows(a agent.State) [][]string {
	state := string(a.Presence)
	if a.Version != "" {
		state += ", version " + a.Version
	}
	if a.Problem != "" {
		state += ": " + a.Problem
	}
	rows := [][]string{{"Agent:", state}}
	if a.Hostname != "" {
		rows = append(rows, []string{"Guest's name:", a.Hostname})
	}
	if os := a.OS; os != nil {
		text := strings.TrimSpace(os.Name + " " + os.Version)
		if os.Kernel != "" {
			text += fmt.Sprintf(", kernel %s", os.Kernel)
		}
		rows = append(rows, []string{"Guest's system:", text})
	}
	return rows
}
