package control

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/bench/memory"
	"github.com/nodevirt/nodevirt/test/daemon"
)

// userAgent begins the controller's, which identifies its requests.
const userAgent = program + "/"

// replica is the program, as a pod of it would run.
type replica struct {
	*daemon.Daemon
	metrics string // HOST:PORT
}

func (r *rig) start(i int) (*replica, error) {
	kubeconfig, err := r.kubeconfig()
	if err != nil {
		return nil, err
	}
	args := []string{"-kubeconfig", kubeconfig, "-leader-election-namespace", controllerNamespace, "-namespace", controllerNamespace}
	p := new(replica)
	for flag, to := range map[string]*string{"-metrics-address": &p.metrics, "-health-address": nil, "-api-address": nil} {
		port, err := apiserver.FreePort()
		if err != nil {
			return nil, err
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if args = append(args, flag, address); to != nil {
			*to = address
		}
	}
	p.Daemon = daemon.New(r.program(), filepath.Join(r.dir, fmt.Sprintf("controller-%d.log", i)), args...)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it by `make controller`", err)
	}
	return p, nil
}

// kubeconfig writes the file of a cluster's administrator.
func (r *rig) kubeconfig() (string, error) {
	path := filepath.Join(r.dir, "kubeconfig")
	return path, r.server.WriteKubeconfig(path, clientcmdapi.AuthInfo{Token: r.server.Config().BearerToken})
}

// weight is what processes have in memory, in MiB.
type weight struct{ pss, rss float64 }

// settle is how long the controller is left alone before its memory is looked at.
const settle = 10 * time.Second

// weigh weighs all replicas together.
func (r *rig) weigh(ctx context.Context) (w weight, err error) {
	if err := sleep(ctx, settle); err != nil {
		return w, err
	}
	for _, p := range r.replicas {
		pss, err := memory.PSS(p.PID())
		if err != nil {
			return w, err
		}
		rss, err := memory.Mebibytes(p.PID(), "smaps_rollup", "Rss")
		if err != nil {
			return w, err
		}
		w.pss, w.rss = w.pss+pss, w.rss+rss
	}
	return w, nil
}
