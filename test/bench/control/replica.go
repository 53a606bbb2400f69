package control

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/bench/memory"
)

// userAgent begins the controller's, which identifies its requests.
const userAgent = "nodevirt-controller/"

// replica is the program, as a pod of it would run.
type replica struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

func (r *rig) start(ctx context.Context, i int) (*replica, error) {
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	if err := r.server.WriteKubeconfig(kubeconfig, clientcmdapi.AuthInfo{Token: r.server.Config().BearerToken}); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("controller-%d.log", i)))
	if err != nil {
		return nil, err
	}
	args := []string{"-kubeconfig", kubeconfig, "-leader-election-namespace", "nodevirt", "-namespace", "nodevirt"}
	for _, flag := range []string{"-metrics-address", "-health-address", "-api-address"} {
		port, err := apiserver.FreePort()
		if err != nil {
			return nil, err
		}
		args = append(args, flag, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	cmd := exec.CommandContext(ctx, r.program(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the controller: %w: build it by `make controller`", err)
	}
	p := &replica{cmd, log, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

func (p *replica) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
	p.log.Close()
}

func (p *replica) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *replica) tail() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
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
		pss, err := memory.PSS(p.cmd.Process.Pid)
		if err != nil {
			return w, err
		}
		rss, err := memory.Mebibytes(p.cmd.Process.Pid, "smaps_rollup", "Rss")
		if err != nil {
			return w, err
		}
		w.pss, w.rss = w.pss+pss, w.rss+rss
	}
	return w, nil
}
