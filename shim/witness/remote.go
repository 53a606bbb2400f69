package witness

import (
	"encoding/json"
	"strconv"
)

// RemoteDisk is a disk that QEMU opens over the network: an iSCSI target's, with Target, or an RBD image.
type RemoteDisk struct {
	Target string
	LUN    int

	Pool, Image string
	// Monitors are addresses with ports, as QEMU has them.
	Monitors []RemoteServer

	ReadOnly bool
}

// RemoteServer is an address of a storage cluster.
type RemoteServer struct{ Host, Port string }

// blockdev is what libvirt writes behind QEMU's -blockdev.
type blockdev struct {
	Driver   string          `json:"driver"`
	Name     string          `json:"node-name"`
	ReadOnly bool            `json:"read-only"`
	File     json.RawMessage `json:"file"` // a node's name, or a node

	Target string          `json:"target"`
	LUN    json.RawMessage `json:"lun"` // a number, or text

	Pool   string `json:"pool"`
	Image  string `json:"image"`
	Server []struct {
		Host string `json:"host"`
		Port string `json:"port"`
	} `json:"server"`
}

// Bounds of what is read of one command line, which any pod's process with QEMU's name can have: what libvirt writes for a
// node of a disk has some hundred bytes, and a VM has fewer nodes than that.
const (
	maxBlockdev  = 64 << 10 // bytes of a node
	maxBlockdevs = 1024
	maxMonitors  = 16 // of an RBD image
)

// remoteDisks returns the network disks of QEMU's command line.
func remoteDisks(args [][]byte) []RemoteDisk {
	var disks []RemoteDisk
	reads := map[string]bool{} // names of nodes that are opened for reading alone
	var nodes []blockdev
	for i, arg := range args {
		if string(arg) != "-blockdev" || i+1 == len(args) || len(args[i+1]) > maxBlockdev || len(nodes) == maxBlockdevs {
			continue
		}
		var b blockdev
		if json.Unmarshal(args[i+1], &b) != nil {
			continue
		}
		var below string
		if b.ReadOnly && json.Unmarshal(b.File, &below) == nil {
			reads[below] = true // libvirt says so of the format's node
		}
		nodes = append(nodes, b)
	}
	for _, b := range nodes {
		d := RemoteDisk{ReadOnly: b.ReadOnly || reads[b.Name]}
		switch b.Driver {
		case "iscsi":
			d.Target, d.LUN = b.Target, lun(b.LUN)
		case "rbd":
			d.Pool, d.Image = b.Pool, b.Image
			for _, s := range b.Server[:min(len(b.Server), maxMonitors)] {
				d.Monitors = append(d.Monitors, RemoteServer(s))
			}
		default:
			continue
		}
		disks = append(disks, d)
	}
	return disks
}

// lun returns a LUN that is a number or text, and 0, QEMU's default, if it is neither.
func lun(raw json.RawMessage) int {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
