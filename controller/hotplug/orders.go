package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

const (
	// orderTime bounds one order to a node, which waits for its libvirtd and the guest.
	orderTime = 45 * time.Second
	// maxAnswer bounds a node's answer, in bytes.
	maxAnswer = 4 << 10
	// maxMessage bounds a stranger's text in a status, in bytes.
	maxMessage = 1024
)

// target is libvirt's name of a disk.
var target = regexp.MustCompile(`^[a-z]{2,8}$`)

// ask gives an order to the VM, and returns the node's answer.
func (w *work) ask(ctx context.Context, name string, argument any) ([]byte, error) {
	text, err := json.Marshal(argument)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	text, err = w.Nodes.Control(ctx, w.own, maxAnswer, name, string(text))
	if err != nil {
		return nil, fmt.Errorf("%s in pod %s on node %s: %s", name, w.own.Name, w.own.Spec.NodeName, clip(err.Error()))
	}
	return text, nil
}

// give gives an order about a volume to the VM, and returns the node's answer.
func (w *work) give(ctx context.Context, v *volume, name string, argument any) (order.Disk, error) {
	var d order.Disk
	text, err := w.ask(ctx, name, argument)
	if err != nil {
		return d, err
	}
	err = json.Unmarshal(text, &d)
	if err != nil || d.Name != v.name || d.Size < 0 || d.Target != "" && !target.MatchString(d.Target) {
		return order.Disk{}, fmt.Errorf("%s in pod %s on node %s: the answer is not about disk %s", name, w.own.Name, w.own.Spec.NodeName, v.name)
	}
	switch d.State {
	case order.None, order.Attaching, order.Attached, order.Detaching:
		return d, nil
	}
	return order.Disk{}, fmt.Errorf("%s in pod %s on node %s: the answer has an unknown state", name, w.own.Name, w.own.Spec.NodeName)
}

// clip bounds a stranger's text and makes it valid UTF-8.
func clip(text string) string { return strings.ToValidUTF8(fields.Clip(text, maxMessage), "?") }
