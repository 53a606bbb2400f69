package doctor

import (
	"context"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// checkGuests compares the QEMU processes of the node's VMs with what the shim says of their containers. A guest
// that the shim, its record or libvirt has lost runs on, and is seen here.
func checkGuests(ctx context.Context, c config.Config) Finding {
	all, err := witness.Node{FirstUID: c.VM.UIDBase, UIDs: c.VM.UIDCount}.Processes()
	if err != nil {
		return warn("run doctor as root", "%v", err)
	}
	var guests []witness.Process
	for _, p := range all {
		if p.Emulator {
			guests = append(guests, p)
		}
	}
	if len(guests) == 0 {
		return ok("no guest runs")
	}
	n, err := cli.Connect(c.Listen)
	if err != nil {
		return warn("set listen in the shim's config", "%v", err)
	}
	defer n.Close()
	return explained(guests, func(id string) (*runtimeapi.ContainerStatus, error) {
		reply, err := n.Pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		return reply.GetStatus(), err
	})
}

// explained is the verdict on guests that run, with the shim's status of their containers.
func explained(guests []witness.Process, status func(id string) (*runtimeapi.ContainerStatus, error)) Finding {
	var problems []string
	for _, p := range guests {
		if p.Container == "" {
			continue // it is being started
		}
		s, err := status(p.Container)
		what := ""
		switch {
		case cli.NotFound(err):
			what = "the shim knows no container of it"
		case err != nil:
			return warn("start the shim: systemctl enable --now nodevirt-shim", "%d guests run, and the shim does not report whether it knows them: %v", len(guests), cli.Plain(err))
		case s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING && s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED:
			what = fmt.Sprintf("its container is %s: %s", strings.ToLower(strings.TrimPrefix(s.GetState().String(), "CONTAINER_")), s.GetMessage())
		case s.GetReason() != "":
			what = s.GetMessage()
		}
		if what != "" {
			problems = append(problems, fmt.Sprintf("QEMU, process %d, of domain %s, container %s: %s", p.PID, p.Domain, cli.ShortID(p.Container), what))
		}
	}
	if len(problems) > 0 {
		return Finding{
			Level: Lost, Detail: strings.Join(problems, "\n"),
			Remedy: `end these guests cleanly: see "A guest that libvirt or its record has lost" in docs/node.md`,
		}
	}
	return ok("%d guests run, and the shim knows them", len(guests))
}
