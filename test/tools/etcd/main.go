// Program etcd is etcd's server. Built from its own module, the program would be named "server".
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
