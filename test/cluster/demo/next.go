package demo

import "fmt"

// next tells what a reader can do now.
func (d *demo) next() {
	fmt.Fprintf(d.out, `
The cluster is up. Try, in "make cluster-shell":

  kubectl get pods -A -o wide         the VM's pod among others
  kubectl logs example                its console
  kubectl attach -it example          type there; detach with ^C
  kubectl port-forward example 8080:80
  kubectl exec client -- wget -qO- http://example/
  kubectl describe node node-1
  kubectl delete pod example          ACPI shutdown, then power off

or from elsewhere, with

  export KUBECONFIG=%s PATH=%s/bin:$PATH

"make cluster" again uses what stands; "make cluster-down" leaves nothing of it behind.
`, d.cluster.Kubeconfig(), d.top)
}
