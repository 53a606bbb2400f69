// Package badinput holds the end-to-end tests of what a VM's author, an image or the node itself
// can do wrong: each case goes through the shim's socket to real parts, is answered with a text
// that names the object and the way out, and leaves nothing.
//
// What each part refuses in detail is tested beside the part.
package badinput
