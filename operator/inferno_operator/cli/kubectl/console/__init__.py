"""Pages with the rights of a person: `kubectl inferno console`, and behind a proxy for many people.

    browser --> serve: who may ask --> app: routes --> fleet, server, ...: objects -> page --> html
                                        |
                                        +--> reply: the answer to a Plan

A page is a value: tables and lines that the commands print, too. The API server decides what a
person may see and do; nothing here has rights of its own.
"""
