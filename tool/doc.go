// Package tool holds the nouns that everybody shares: what a tool declares about itself (Manifest), one use of it
// (Call), the one end that every use gets (Result), and the rules for their names, sizes and schemas.
//
// It decides nothing about running a tool and knows no bus. Schemas are compiled once (Compile) and then only read; a
// compiled tool may be used by many goroutines.
package tool
