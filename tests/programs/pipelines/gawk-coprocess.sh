#!/bin/bash
gawk 'BEGIN {
    sorter = "sort -n"
    for (i = 1; i <= 60; i++) print (i * 37) % 61 |& sorter
    close(sorter, "to")
    while ((sorter |& getline line) > 0) out = out " " line
    print out
    print close(sorter)
}' | md5sum
