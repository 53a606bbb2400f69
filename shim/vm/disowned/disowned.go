// Package disowned finds guests of this node whose pods the API server does not have, as after a restore of etcd or a
// forced deletion: nothing in the cluster knows of such a guest, and another node may start it a second time.
//
// It also finds the pods that the API server has and whose guests have left this node.
//
// It owns the comparison and its report: a condition of the Node, a metric, and a note of each VM, which the container's
// status and nodevirt doctor show. It ends no guest: package lifecycle does, when the kubelet stops one. It also answers
// which guests the node has, so that the controller can ask before it starts another.
package disowned

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/nodelabels"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

const (
	// period is the time between two comparisons, roundTime bounds one.
	period    = time.Minute
	roundTime = 45 * time.Second
	// maxAsked bounds the pods that are looked for one by one in a comparison.
	maxAsked = 100
	// remembered is how long the API server's way back is reported.
	remembered = time.Hour
)

// Pods asks the API server for pods; [podstatus.Lookup].
type Pods interface {
	All(ctx context.Context) (pods map[string]podstatus.Listed, ok bool, _ error)
	Gone(ctx context.Context, pod podstatus.Pod) (bool, error)
	Revision(ctx context.Context) (uint64, error)
}

// Options are what a Survey works with. All are needed.
type Options struct {
	Table *table.Table
	Pods  Pods
	// Seen gets the node's pods by their UIDs; [podstatus.Writer].
	Seen func(map[string]podstatus.Listed)
	// Ended returns how the guest of a pod has ended here whose container is removed; [record.Store]. Departed reports that
	// a migration has taken the guest of a pod that the API server still has; [report.Conditions].
	Ended    func(podUID string) (_ record.Ended, found bool, _ error)
	Departed func(podstatus.Pod, record.Ended)
	// Node writes a condition of the Node; [nodelabels.Conditions].
	Node func(context.Context, nodelabels.NodeCondition) error
	// Count gets the number of guests without a pod, for a metric.
	Count  func(int)
	Logger *slog.Logger
}

// Survey compares the node's guests with the API server's pods.
type Survey struct {
	o Options

	// revision is the API server's newest version that was seen, wentBack when it was lower.
	revision uint64
	wentBack time.Time
	back     string
	last     int  // guests without a pod at the last comparison
	unread   int  // ends that the last comparison could not read
	failed   bool // the last comparison failed
}

// New returns a Survey.
func New(o Options) *Survey { return &Survey{o: o} }

// Run compares until ctx ends.
func (s *Survey) Run(ctx context.Context) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, roundTime)
		err := s.compare(within)
		cancel()
		if err != nil && ctx.Err() == nil && !s.failed {
			s.o.Logger.Warn("comparing the node's guests with the API server's pods failed, will retry", "error", err)
		}
		s.failed = err != nil
		background.Sleep(ctx, period)
	}
}

// compare compares once, and reports the result.
func (s *Survey) compare(ctx context.Context) error {
	pods, ok, err := s.o.Pods.All(ctx)
	if err != nil || !ok {
		return err
	}
	if err := s.compareRevision(ctx); err != nil {
		return err
	}
	s.o.Seen(pods)
	s.reportDeparted(pods)
	var lost []guest
	asked := 0
	for _, v := range s.vms() {
		g, ok := guestOf(v.Record())
		if !ok {
			continue
		}
		_, there := pods[g.UID]
		gone := false
		// The list may be older than the pod. A question for one pod is not.
		if !there && asked < maxAsked {
			asked++
			if gone, err = s.o.Pods.Gone(ctx, g.pod); err != nil {
				return err
			}
		}
		note := ""
		if gone {
			lost = append(lost, g)
			note = "the API server does not have the pod of this guest, which may run a second time elsewhere; " +
				`see "Restore etcd" in nodevirt's documentation`
		}
		v.SetDisowned(note)
	}
	if len(lost) != s.last {
		s.o.Logger.Warn("guests run whose pods the API server does not have", "count", len(lost), "guests", names(lost))
	}
	s.last = len(lost)
	s.o.Count(len(lost))
	c, err := s.condition(lost)
	if err != nil {
		return err
	}
	return s.o.Node(ctx, c)
}

// reportDeparted reports which pods' guests a migration has taken from this node, whose containers are removed, though the
// API server still has the pods, as after a restore of etcd. The kubelet then only knows that the container is missing. A
// record that cannot be read says nothing about the other pods, and keeps no guest from being reported.
func (s *Survey) reportDeparted(pods map[string]podstatus.Listed) {
	here := map[string]bool{}
	for _, r := range s.o.Table.Records() {
		here[r.Sandbox.Value.GetMetadata().GetUid()] = true
	}
	var unread []error
	for uid, pod := range pods {
		if here[uid] {
			continue
		}
		end, found, err := s.o.Ended(uid)
		switch {
		case err != nil:
			unread = append(unread, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err))
		case found && end.Departed():
			s.o.Departed(pod.Pod, end)
		}
	}
	if len(unread) > 0 && len(unread) != s.unread {
		s.o.Logger.Warn("reading how guests of pods ended here failed; whether they have left the node is not reported",
			"count", len(unread), "first", unread[0])
	}
	s.unread = len(unread)
}

// compareRevision notes when the API server's version goes back.
func (s *Survey) compareRevision(ctx context.Context) error {
	now, err := s.o.Pods.Revision(ctx)
	if err != nil {
		return err
	}
	if now < s.revision {
		s.wentBack = time.Now()
		s.back = fmt.Sprintf("the API server's version went back from %d to %d: etcd was restored", s.revision, now)
		s.o.Logger.Error("etcd was restored", "reason", s.back, "remedy", `follow "Restore etcd" in nodevirt's documentation: restart the kubelet, and compare the guests with the pods`)
	}
	s.revision = now
	return nil
}

// condition returns the Node's condition.
func (s *Survey) condition(lost []guest) (nodelabels.NodeCondition, error) {
	data, err := encode(lost)
	if err != nil {
		return nodelabels.NodeCondition{}, err
	}
	c := nodelabels.NodeCondition{Type: condition.GuestsWithoutPods, Status: "False", Reason: condition.ReasonPodsKnown, Message: "the API server has the pods of all guests"}
	c.Annotations = map[string]string{condition.AnnotationGuests: data}
	switch {
	case len(lost) > 0:
		c.Status, c.Reason, c.Message = "True", condition.ReasonPodsUnknown, fmt.Sprintf("%d guests run whose pods the API server does not have: %s", len(lost), names(lost))
	case !s.wentBack.IsZero() && time.Since(s.wentBack) < remembered:
		c.Status, c.Reason, c.Message = "True", condition.ReasonStateWentBack, s.back
	}
	return c, nil
}

// vms returns the VMs whose guests run, as far as the node knows.
func (s *Survey) vms() []*table.VM {
	var all []*table.VM
	for _, r := range s.o.Table.Records(record.Running, record.Unknown) {
		if v, err := s.o.Table.Find(r.ID); err == nil {
			all = append(all, v)
		}
	}
	return all
}

// Controls returns the machine controls that a Survey carries out.
func Controls() []string { return []string{condition.OrderGuests} }

// Do implements package guest's orders. The VM is only how the node was reached, and the argument is empty.
func (s *Survey) Do(context.Context, *table.VM, string, string) ([]byte, error) {
	answer := condition.NodeGuests{Guests: []condition.NodeGuest{}}
	for _, v := range s.vms() {
		if g, ok := guestOf(v.Record()); ok {
			answer.Guests = append(answer.Guests, g.NodeGuest)
		}
	}
	return json.Marshal(answer)
}
