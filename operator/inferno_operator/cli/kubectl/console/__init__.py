"""Pages on this machine, with the rights of the kubeconfig: `kubectl inferno console`.

    browser --> access: host, origin, cookie --> app: routes --> views: objects -> values --> html
                                                  |
                                                  +--> reply: the answer to a Plan

A page is a value: tables and lines that the commands print, too. The API server decides what a
person may see and do; nothing here has rights of its own.
"""
