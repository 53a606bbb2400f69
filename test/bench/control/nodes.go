package control

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/daemon"
)

// nodesReady bounds how long KWOK may take to make all nodes ready.
const nodesReady = 5 * time.Minute

// admitNodes has the API server add no taint to nodes that are not ready yet: no controller would remove it.
const admitNodes = "--disable-admission-plugins=TaintNodesByCondition"

// startNodes creates the nodes, and starts the scheduler and KWOK, which plays the nodes.
func (r *rig) startNodes(ctx context.Context) error {
	fmt.Fprintf(r.Log, "%d nodes\n", r.Nodes)
	kubeconfig, err := r.kubeconfig()
	if err != nil {
		return err
	}
	config := filepath.Join(r.dir, "kwok.yaml")
	if err := os.WriteFile(config, []byte(stages()), 0o600); err != nil {
		return err
	}
	port, err := apiserver.FreePort()
	if err != nil {
		return err
	}
	// Kubernetes' default would have the scheduler bind 50 pods a second.
	const qps = "5000"
	for name, args := range map[string][]string{
		"kube-scheduler": {
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--leader-elect=false",
			"--kube-api-qps=" + qps, "--kube-api-burst=" + qps,
		},
		"kwok": {"--kubeconfig=" + kubeconfig, "--config=" + config, "--manage-all-nodes=true", "--cidr=10.0.0.1/12", "--node-ip=192.0.2.1"},
	} {
		d := daemon.New(filepath.Join(r.server.Bin(), name), filepath.Join(r.dir, name+".log"), args...)
		if err := d.Start(); err != nil {
			return fmt.Errorf("%w: build it by test/tools/build kubernetes kwok", err)
		}
		r.daemons[name] = d
	}
	if err := r.createNodes(ctx); err != nil {
		return err
	}
	return r.daemons["kwok"].Wait(ctx, nodesReady, r.checkNodes)
}

func (r *rig) createNodes(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.Clients)
	for i := range r.Nodes {
		group.Go(func() error { return r.client.Create(ctx, newNode(fmt.Sprintf("node-%d", i))) })
	}
	return group.Wait()
}

// newNode returns a node with the labels that a pod of a VM requires.
func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname:                       name,
		corev1.LabelOSStable:                       "linux",
		corev1.LabelArchStable:                     "amd64",
		"nodevirt.io/node":                         "true", // as the RuntimeClass requires
		kubevirt.NodeSchedulable:                   "true",
		kubevirt.SupportedMachineTypeLabel + "q35": "true",
	}}}
}

// checkNodes returns an error unless all nodes are ready.
func (r *rig) checkNodes(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes); err != nil {
		return err
	}
	ready := 0
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < r.Nodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, r.Nodes)
	}
	return nil
}
