// Package ramfd gives QEMU a guest's RAM that exists before QEMU starts.
//
// It owns what the program does that libvirt starts in QEMU's place: it gets the RAM's descriptor by package
// fdpass, and changes QEMU's arguments. Package forks has the RAM.
//
// QEMU maps the RAM privately, so that many guests share the pages that they do not write. QEMU 7.2
// opens such a file to write, though it never does. Therefore the shim passes a sealed memfd, which
// no process can change, also not one that a guest took over.
package ramfd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/domain/fdpass"
)

// Variable is the variable of QEMU's environment that holds the socket's path.
const Variable = "NODEVIRT_RAM"

// Block is QEMU's name of the RAM of a PC. Its parts before and behind 4 GiB are one block. NodeBlock is libvirt's name of the
// RAM with which a PC starts that can get more: it is that of a NUMA node.
const (
	Block     = "pc.ram"
	NodeBlock = "ram-node0"
)

// Blocks returns the names of a PC's RAM. A guest has one of these blocks.
func Blocks() []string { return []string{Block, NodeBlock} }

// Take returns QEMU's arguments, with the RAM of the environment's socket if there is one. The
// descriptor stays open when the process executes QEMU.
func Take(args, env []string) ([]string, error) {
	path := fdpass.Variable(env, Variable)
	if path == "" {
		return args, nil
	}
	_, fds, err := fdpass.Receive(path)
	if err != nil {
		return nil, fmt.Errorf("get the guest's RAM from %s: %w", path, err)
	}
	return withRAM(args, fmt.Sprintf("/proc/self/fd/%d", fds[0]))
}

// withRAM returns QEMU's arguments with a private map of a file as the PC's RAM.
func withRAM(args []string, path string) ([]string, error) {
	args = slices.Clone(args)
	for i := 1; i < len(args); i++ {
		if args[i-1] != "-object" {
			continue
		}
		d := json.NewDecoder(bytes.NewReader([]byte(args[i])))
		d.UseNumber()
		var object map[string]any
		if d.Decode(&object) != nil || object["id"] != Block && object["id"] != NodeBlock {
			continue
		}
		if kind := object["qom-type"]; kind != "memory-backend-ram" {
			return nil, fmt.Errorf("the guest's RAM is a %v", kind)
		}
		object["qom-type"], object["mem-path"], object["share"] = "memory-backend-file", path, false
		object["x-use-canonical-path-for-ramblock-id"] = false // or the block has another name
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		args[i] = string(text)
		return args, nil
	}
	return nil, fmt.Errorf("QEMU's arguments have no object %s", strings.Join(Blocks(), " or "))
}
