// Package console serves what the other commands show, and a few of the things that they do, as pages for a browser on this machine. Every page
// is whole as it comes from here, in one answer without a script: the script only fetches it again. What the pages say comes from the same functions
// that write for a terminal (view, attention and why), cleaned in the same way, and html/template escapes it.
//
// Whoever may look is decided here (door): one browser has a cookie for the address that the command printed, once. What may be done is decided by
// the services, as for any other command. The package keeps nothing but what it has just read, knows no addresses and no credentials, and decides
// nothing about events.
package console
